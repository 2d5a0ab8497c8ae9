// What this browser keeps; where it keeps nothing, the page does without.

export function keep(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch { /* it is switched off */ }
}

export function kept(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}
