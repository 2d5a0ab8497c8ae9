// Stores values in the browser. The page works even if the browser stores nothing.

// keep stores a value, unless the browser forbids that.
export function keep(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch { /* storage is disabled */ }
}

export function kept(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}
