/* One worker of page.html. */
const FREE = 0, HELD = 1, AWAITED = 2, ROUNDS = 2000, LIMIT = 200000;

function acquire(words) {
    if (Atomics.compareExchange(words, 0, FREE, HELD) === FREE) return;
    while (Atomics.exchange(words, 0, AWAITED) !== FREE) Atomics.wait(words, 0, AWAITED);
}

function release(words) {
    if (Atomics.exchange(words, 0, FREE) === AWAITED) Atomics.notify(words, 0, 1);
}

function primesBelow(limit) {
    const composite = new Uint8Array(limit);
    let primes = 0;
    for (let i = 2; i < limit; i++) {
        if (composite[i]) continue;
        primes++;
        for (let j = i * i; j < limit; j += i) composite[j] = 1;
    }
    return primes;
}

onmessage = async ({ data: { words, number } }) => {
    for (let i = 0; i < ROUNDS; i++) {
        acquire(words);
        words[1] = words[1] + 1;
        release(words);
    }
    const bytes = new Uint8Array(65536).map((_, i) => i * 31 ^ number);
    const digest = Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
    const hex = digest.map((byte) => byte.toString(16).padStart(2, "0")).join("");
    postMessage({ rounds: ROUNDS, primes: primesBelow(LIMIT), digest: hex });
};
