// Draws the figures of a page. Each is an element with a block of JSON inside: data and layout
// that the server made. Nothing is computed here.
"use strict";
(() => {
  const calm = { displayModeBar: false, responsive: true, staticPlot: false, doubleClick: false };

  // drawn: figures that are on the page already, by name; they change their data without a flicker
  function draw(root, drawn = new Map()) {
    if (typeof Plotly === "undefined") return;
    for (const place of root.querySelectorAll("[data-figure]")) {
      const block = place.querySelector("script[type='application/json']");
      if (!block) continue;
      const figure = JSON.parse(block.textContent);
      const layout = Object.assign({}, figure.layout, { autosize: true, dragmode: false });
      layout.font = Object.assign({}, layout.font, { size: place.clientWidth < 480 ? 13 : 15 });
      const stage = drawn.get(place.dataset.figure) || document.createElement("div");
      stage.classList.add("figure");
      place.replaceChildren(block, stage);
      Plotly.react(stage, figure.data, layout, calm);
    }
  }

  window.drawFigures = draw;
  document.addEventListener("DOMContentLoaded", () => draw(document));
})();
