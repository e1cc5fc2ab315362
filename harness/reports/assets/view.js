// Shared by both pages: creating elements, formatting numbers, the theme.
const root = document.documentElement;
const byId = (id) => document.getElementById(id);

/** Create an element. Strings become text nodes, never markup. */
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim() || "#888";

const seconds = (value) => {
  const size = Math.abs(value);
  if (size >= 100) return `${value.toFixed(1)} s`;
  if (size >= 1) return `${value.toFixed(2)} s`;
  return size === 0 ? "0 s" : size >= 0.001 ? `${(value * 1000).toFixed(size >= 0.1 ? 0 : 1)} ms` : `${(value * 1e6).toFixed(0)} µs`;
};

const counted = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

const themeChanged = [];
{
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const apply = () => {
    const theme = chosen ?? (system.matches ? "dark" : "light");
    root.dataset.theme = theme;
    byId("theme").textContent = theme === "dark" ? "light" : "dark";
    for (const listener of themeChanged) listener();
  };
  byId("theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
