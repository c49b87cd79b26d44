"""Install the package that Spark finds by its name as a folder, also if the project is installed to be edited.

Spark lists the folders of the import path, and the import hook of such an installation is none.
"""

from pathlib import Path

from setuptools import setup

# isort: split
# Setuptools provides it.
from distutils.command.install_headers import install_headers


class Install(install_headers):
    """Copies the package. Both kinds of installation copy headers, which are files of any name."""

    def run(self) -> None:
        """Copy it."""
        package = Path(self.get_finalized_command("install").install_lib, "pyspark_lake")
        self.mkpath(str(package))
        self.copy_file(self.distribution.headers[0], str(package))


setup(
    cmdclass={"install_headers": Install},
    headers=["commands/spark/pyspark_lake/__init__.py"],
    script_name="setup.py",
)
