// The slot of a key, by the slot functions of kafka_keyshared/hashing.py that need no package.

const SLOT_SEED = 0x6b737631;

/** 32-bit murmur3 (x86). */
export function murmur3(data, seed) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const blocks = data.length & ~3;
  let hash = seed;
  const mixed = (word) => {
    const turned = Math.imul(word, 0xcc9e2d51);
    return Math.imul((turned << 15) | (turned >>> 17), 0x1b873593);
  };
  for (let at = 0; at < blocks; at += 4) {
    hash ^= mixed(view.getUint32(at, true));
    hash = (hash << 13) | (hash >>> 19);
    hash = (Math.imul(hash, 5) + 0xe6546b64) | 0;
  }
  let rest = 0;
  for (let at = data.length - 1; at >= blocks; at -= 1) rest = (rest << 8) | data[at];
  if (data.length > blocks) hash ^= mixed(rest);
  hash ^= data.length;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

function fnv1a(data) {
  let hash = 0x811c9dc5;
  for (const byte of data) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}

const FUNCTIONS = {
  mmh3: (data) => murmur3(data, SLOT_SEED) & 0xffff,
  pulsar: (data) => (murmur3(data, 0) & 0x7fffffff) % 65536,
  fnv1a: (data) => fnv1a(data) >>> 16,
};

/** The bytes of a key as it is shown and typed: its text, or hex:00ff. */
function bytesOf(typed) {
  if (!/^hex:([0-9a-f]{2})*$/i.test(typed)) return new TextEncoder().encode(typed);
  return Uint8Array.from(typed.slice(4).match(/../g) ?? [], (each) => Number.parseInt(each, 16));
}

/** The slot of a key, or null where this page has no such function. */
export function slotOf(typed, name = "mmh3") {
  return FUNCTIONS[name]?.(bytesOf(typed)) ?? null;
}
