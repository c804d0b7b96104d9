"use strict";
// Data files are scripts that call NCO.give: a page opened from disk may load scripts, but not fetch files.
const NCO = (() => {
  const given = new Map();
  const waiting = new Map();

  function give(name, value) {
    given.set(name, value);
  }

  function load(name) {
    if (waiting.has(name)) return waiting.get(name);
    const promise = new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `data/${name}.js`;
      script.onload = () => resolve(given.get(name));
      script.onerror = () => {
        waiting.delete(name);
        reject(new Error(`data/${name}.js is missing from this folder`));
      };
      document.head.append(script);
    });
    waiting.set(name, promise);
    return promise;
  }

  // [[repeat, first, last + 1], ...] to two lists.
  function spread(ranges) {
    const repeats = [], instances = [];
    for (const [repeat, first, stop] of ranges) {
      for (let i = first; i < stop; i++) {
        repeats.push(repeat);
        instances.push(i);
      }
    }
    return { repeats, instances };
  }

  // What a dataset's file says of its instances, by instance.
  function instancesOf(set) {
    const { instances } = spread(set.ranges);
    const plain = set.names.length === 2 && typeof set.names[1] === "number";
    const at = new Map();
    instances.forEach((instance, i) => {
      at.set(instance, {
        name: plain ? set.names[0] + String(instance).padStart(set.names[1], "0") : set.names[i],
        n: Array.isArray(set.n) ? set.n[i] : set.n,
        reference: set.reference[i],
        source: set.sources[Array.isArray(set.source) ? set.source[i] : set.source] || null,
      });
    });
    return at;
  }

  function gapOf(cost, reference, objective) {
    if (cost === null || reference === null) return null;
    if (reference === 0) return cost === 0 ? 0 : null;
    return ((objective === "max" ? -100 : 100) * (cost - reference)) / Math.abs(reference);
  }

  // base64 of little-endian 16-bit integers.
  function unpack(text) {
    const bytes = atob(text);
    const values = new Uint16Array(bytes.length / 2);
    for (let i = 0; i < values.length; i++) values[i] = bytes.charCodeAt(2 * i) | (bytes.charCodeAt(2 * i + 1) << 8);
    return values;
  }

  return { give, load, spread, instancesOf, gapOf, unpack };
})();
