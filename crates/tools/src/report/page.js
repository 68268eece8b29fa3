// Sorts a table by the column whose title is clicked, or chosen with the Enter key.
for (const table of document.querySelectorAll("table")) {
  const titles = [...table.tHead.rows[0].cells];
  titles.forEach((title, at) => {
    if (title.className === "bar") return;
    const value = (row) => row.cells[at].dataset.value ?? row.cells[at].textContent;
    const sort = () => {
      const body = table.tBodies[0];
      const rows = [...body.rows].filter((row) => row.className !== "rest");
      const numeric = rows.every((row) => value(row).trim() !== "" && !isNaN(value(row)));
      const up = (title.ariaSort ?? (numeric ? "ascending" : "descending")) === "descending";
      const compare = (a, b) =>
        numeric ? value(a) - value(b) : value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0;
      rows.sort((a, b) => (up ? compare(a, b) : compare(b, a)));
      body.prepend(...rows);
      titles.forEach((other) => (other.ariaSort = null));
      title.ariaSort = up ? "ascending" : "descending";
    };
    title.classList.add("sorts");
    title.tabIndex = 0;
    title.addEventListener("click", sort);
    title.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  });
}
