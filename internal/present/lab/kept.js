// Values that the browser stores. The page also works if the browser stores nothing.

// keep stores a value in the browser, unless the browser forbids that.
export function keep(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch { /* storage is disabled */ }
}

export function kept(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}
