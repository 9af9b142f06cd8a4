// Draws the figures of a page. Each is an element with a block of JSON inside: data and layout
// that the server made. Nothing is computed here.
"use strict";
(() => {
  const calm = { displayModeBar: false, responsive: true, staticPlot: false, doubleClick: false };

  function draw(root) {
    if (typeof Plotly === "undefined") return;
    for (const place of root.querySelectorAll("[data-figure]")) {
      const block = place.querySelector("script[type='application/json']");
      if (!block) continue;
      const figure = JSON.parse(block.textContent);
      const narrow = place.clientWidth < 480;
      const layout = Object.assign({}, figure.layout, { autosize: true });
      layout.font = Object.assign({}, layout.font, { size: narrow ? 13 : 15 });
      layout.dragmode = false;
      const stage = document.createElement("div");
      stage.className = "figure";
      place.replaceChildren(block, stage);
      Plotly.newPlot(stage, figure.data, layout, calm);
    }
  }

  window.drawFigures = draw;
  document.addEventListener("DOMContentLoaded", () => draw(document));
})();
