// The colours that were chosen: "light", "dark", or "" for those of the system. It runs before
// anything is drawn, so that no page flashes in others. Where a browser keeps nothing, the
// choice lasts for the page.

(() => {
  const stored = "lab-theme", root = document.documentElement;
  let theme = "";
  try { theme = localStorage.getItem(stored) || ""; } catch { /* it is switched off */ }
  root.dataset.theme = theme;
  document.addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    choice.value = theme;
    choice.addEventListener("change", () => {
      root.dataset.theme = choice.value;
      try { localStorage.setItem(stored, choice.value); } catch { /* likewise */ }
    });
  });
})();
