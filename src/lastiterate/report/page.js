// Draws the figures; where this runs, the tables of numbers fold away until they are wanted.
"use strict";
for (const place of document.querySelectorAll(".plot")) {
  const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
  place.hidden = false;
  Plotly.newPlot(place, figure.data, figure.layout, { displayModeBar: false, responsive: true });
}
for (const table of document.querySelectorAll("details.numbers")) {
  table.open = false;
}
