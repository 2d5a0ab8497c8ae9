// Applies the color theme: "light", "dark", or "" for the system's theme. The script runs before
// the page is drawn, so that the page does not flash in other colors. If the browser stores
// nothing, the choice lasts until the page closes.

(() => {
  const stored = "lab-theme", root = document.documentElement;
  let theme = "";
  try { theme = localStorage.getItem(stored) || ""; } catch { /* storage is disabled */ }
  root.dataset.theme = theme;
  document.addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    choice.value = theme;
    choice.addEventListener("change", () => {
      root.dataset.theme = choice.value;
      try { localStorage.setItem(stored, choice.value); } catch { /* storage is disabled */ }
    });
  });
})();
