import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.*;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.jdbc.JdbcCatalog;

/**
 * Appends the entries of one table to another by Iceberg's own commits, some files a commit, and then deletes the
 * files of one day: see foreign_files.py.
 */
public class CopyFiles {
  public static void main(String[] arguments) throws Exception {
    String warehouse = arguments[0];
    int each = Integer.parseInt(arguments[3]);
    boolean flink = arguments[4].equals("flink");
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.setConf(new Configuration());
    catalog.initialize("lake", Map.of("uri", "jdbc:sqlite:" + warehouse + "/catalog.db",
        "jdbc.schema-version", "V0", "warehouse", "file://" + warehouse));
    Table source = catalog.loadTable(TableIdentifier.parse(arguments[1]));
    Table target = catalog.loadTable(TableIdentifier.parse(arguments[2]));
    AppendFiles append = null;
    int files = 0;
    int checkpoint = 0;
    for (ManifestFile manifest : source.currentSnapshot().dataManifests(source.io())) {
      try (ManifestReader<DataFile> reader = ManifestFiles.read(manifest, source.io(), source.specs())) {
        for (DataFile file : reader) {
          append = append == null ? target.newAppend() : append;
          append.appendFile(file.copy());
          if (++files % each == 0) {
            commit(append, flink, ++checkpoint);
            append = null;
          }
        }
      }
    }
    if (append != null) {
      commit(append, flink, ++checkpoint);
    }
    target.newDelete().deleteFromRowFilter(Expressions.and(
        Expressions.greaterThanOrEqual("ts", arguments[5]),
        Expressions.lessThan("ts", arguments[6]))).commit();
    catalog.close();
    // Iceberg's idle threads would hold the process for some seconds.
    System.exit(0);
  }

  private static void commit(AppendFiles append, boolean flink, int checkpoint) {
    if (flink) {
      // As FlinkSink's committer marks its snapshots.
      append.set("flink.job-id", "4a1bd8f0a2b64f2f8b1f6f4a2f3bc1a7");
      append.set("flink.operator-id", "8d3a5f7b1c");
      append.set("flink.max-committed-checkpoint-id", String.valueOf(checkpoint));
    }
    append.commit();
  }
}
