// Values that this browser stores. The page also works if the browser stores nothing.

// keep stores a value in this browser. If the browser forbids that, nothing is stored.
export function keep(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch { /* storage is disabled */ }
}

export function kept(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}
