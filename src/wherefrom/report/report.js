// Draws the figures of a report from the blocks of JSON inside it. Nothing is computed here.
"use strict";
(() => {
  const calm = { displayModeBar: false, responsive: true, doubleClick: false };
  function draw(place) {
    const block = place.querySelector("script[type='application/json']");
    const figure = JSON.parse(block.textContent);
    const narrow = place.clientWidth < 480;
    const layout = Object.assign({}, figure.layout, { autosize: true, dragmode: false });
    layout.font = Object.assign({}, layout.font, { size: narrow ? 11 : 13 });
    place.replaceChildren();
    Plotly.newPlot(place, figure.data, layout, calm);
  }
  const all = () => [...document.querySelectorAll(".drawing")];
  document.addEventListener("DOMContentLoaded", () => all().forEach(draw));
  // paper has another width than the screen, and shows what is folded
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((each) => { each.open = true; });
    all().forEach((place) => Plotly.relayout(place, { width: Math.min(place.clientWidth, 660) }));
  });
  window.addEventListener("afterprint", () => {
    all().forEach((place) => Plotly.relayout(place, { width: null, autosize: true }));
  });
})();
