// Without this script the list is in the order of the report; with it, a click on a heading sorts the list.
for (const list of document.querySelectorAll("table.list")) {
  const headings = [...list.tHead.rows[0].cells];
  headings.forEach((heading, place) => {
    const isText = heading.classList.contains("text");
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    const key = (row) => {
      const cell = row.cells[place];
      const text = cell?.dataset.key ?? (place ? "" : cell.textContent);
      return text === "" ? null : isText ? text : Number(text);
    };
    button.addEventListener("click", () => {
      const before = heading.getAttribute("aria-sort");
      const first = isText || place === 1 ? "ascending" : "descending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = before === first ? other : first;
      const sign = order === "ascending" ? 1 : -1;
      headings.forEach((one) => one.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", order);
      const keyed = [...list.tBodies[0].rows].map((row) => [key(row), row]);
      // Rows without a value are last in both orders.
      keyed.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * (isText ? a.localeCompare(b) : a - b);
      });
      list.tBodies[0].append(...keyed.map(([, row]) => row));
    });
  });
}
