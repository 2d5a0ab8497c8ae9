
const data = JSON.parse(document.getElementById("data").textContent);
for (const place of document.querySelectorAll("[data-drawing]")) {
  const drawing = data[Number(place.dataset.drawing)];
  if (drawing) place.replaceChildren(figure(drawing, { caption: false }));
}
