// Name the column in each cell of a table: on narrow screens, the cells of a row stand one below the other.
for (const table of document.querySelectorAll('.md-typeset table')) {
  const columns = [...table.querySelectorAll('th')].map((header) => header.textContent)
  for (const row of table.querySelectorAll('tbody tr')) {
    for (const cell of row.cells) cell.dataset.column = columns[cell.cellIndex]
  }
}
