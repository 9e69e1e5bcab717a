"""The page's own script: draws the figures, follows the theme, prepares for paper.

Figures come as JSON and name colors by role (``var(--agent)``). Plotly knows no CSS variables, so
the script puts the values of the present theme in their place and draws again when it changes.
"""

from typing import Final

DRAW: Final = """
(() => {
  "use strict";
  const paperWidth = 680;
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
  const draw = ({ node, chosen, sheets }, width) => {
    const sheet = painted(sheets[chosen], getComputedStyle(document.documentElement));
    const layout = { ...sheet.layout, autosize: width === undefined };
    if (width !== undefined) layout.width = width;
    if (coarse) layout.dragmode = false;
    return Plotly.react(node, sheet.data, layout, {
      responsive: true, displaylogo: false, displayModeBar: coarse ? false : "hover",
      modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
    });
  };
  const all = (width) => Promise.all(plots.map((plot) => draw(plot, width)));
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
    return all(on ? paperWidth : undefined);
  };
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all());
  all().then(() => { document.documentElement.dataset.drawn = plots.length; });
})();
"""
