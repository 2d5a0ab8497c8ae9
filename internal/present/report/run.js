
// run.js connects a run's page with its heat map: the page's address selects a cell.
const run = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");
if (main.querySelector(".matrix")) {
  const map = heatMap(main, { find: (link) => run.cells[Number(link.dataset.cell)] && [run, run.cells[Number(link.dataset.cell)]] });
  addEventListener("hashchange", () => map.follow(location.hash));
  map.follow(location.hash);
}
