"""The page's own script: draws the figures, follows the theme, prepares for paper.

Figures come as JSON and name colors by role (``var(--agent)``). Plotly knows no CSS variables, so
the script puts the values of the present theme in their place and draws again when it changes.
"""

from typing import Final

DRAW: Final = """
(() => {
  "use strict";
  const paperWidths = { whole: 680, half: 330 };
  const coarse = matchMedia("(pointer: coarse)").matches;
  const plots = [...document.querySelectorAll(".plot")].map((node) => ({
    node, chosen: 0, sheets: JSON.parse(document.getElementById(node.dataset.source).textContent),
  }));
  const painted = (value, style) => {
    if (typeof value === "string") {
      const role = /^var\\((--[a-z-]+)\\)$/.exec(value);
      return role ? style.getPropertyValue(role[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => painted(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([key, item]) => [key, painted(item, style)]));
    }
    return value;
  };
  const draw = ({ node, chosen, sheets }, onPaper) => {
    const width = !onPaper ? undefined
      : node.closest(".row") ? paperWidths.half : paperWidths.whole;
    const sheet = painted(sheets[chosen], getComputedStyle(document.documentElement));
    const layout = { ...sheet.layout, autosize: width === undefined };
    if (width !== undefined) layout.width = width;
    if (coarse) layout.dragmode = false;
    return Plotly.react(node, sheet.data, layout, {
      responsive: true, displaylogo: false, displayModeBar: coarse ? false : "hover",
      modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
    });
  };
  const all = (onPaper) => Promise.all(plots.map((plot) => draw(plot, onPaper)));
  const stretch = (onPaper) => {
    for (const box of document.querySelectorAll(".svg-container")) {
      const { width, height } = box.parentElement.parentElement._fullLayout;
      box.style.aspectRatio = onPaper ? `${width} / ${height}` : "";
      for (const drawing of box.querySelectorAll(".main-svg")) {
        if (onPaper) drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
        else drawing.removeAttribute("viewBox");
      }
    }
  };
  for (const choice of document.querySelectorAll("select[data-plot]")) {
    const plot = plots.find(({ node }) => node.id === choice.dataset.plot);
    choice.addEventListener("change", () => {
      plot.chosen = Number(choice.value);
      Plotly.purge(plot.node);
      draw(plot);
    });
  }
  const paper = (on) => {
    document.documentElement.toggleAttribute("data-paper", on);
    for (const fold of document.querySelectorAll("details")) {
      if (on) { fold.dataset.was = fold.open; fold.open = true; }
      else { fold.open = fold.dataset.was === "true"; }
    }
    all(on);
    stretch(on);
  };
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all());
  const drawInTurn = async () => {
    for (const plot of plots) {
      await draw(plot);
      await new Promise((resolve) => setTimeout(resolve));
    }
    document.documentElement.dataset.drawn = plots.length;
  };
  drawInTurn();
})();
"""
