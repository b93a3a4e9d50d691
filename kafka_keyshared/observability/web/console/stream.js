// The stream of snapshots. Fetch and not EventSource, which cannot send a token.

export const LAYOUT = 1; // the version of the snapshot's layout that this page reads

const AGAIN = [500, 1000, 2000, 4000]; // milliseconds until it is tried again
const SILENT = 5000; // milliseconds without a word after which a connection counts as lost

let token = "";
try {
  token = sessionStorage.getItem("keyshared-token") ?? "";
} catch {
  // A browser that keeps nothing for pages: it is asked for again.
}

/** The token for requests. It stays in this tab. */
export const auth = {
  get token() {
    return token;
  },
  set token(value) {
    token = value;
    try {
      sessionStorage.setItem("keyshared-token", value);
    } catch {
      // It holds until the page is left.
    }
  },
  get headers() {
    return token ? { Authorization: `Bearer ${token}` } : {};
  },
};

/** Yield the data of each event of a body. */
async function* events(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part
        .split("\n")
        .filter((line) => line.startsWith("data: "))
        .map((line) => line.slice(6))
        .join("\n");
      if (data) yield data;
    }
  }
}

/**
 * Follow the stream for as long as the page is open. `on.snapshot(value)` for each snapshot;
 * `on.state(name, detail)` when the connection is "live", "lost", "token", "old" or "refused".
 */
export async function follow(on) {
  for (let tries = 0; ; tries += 1) {
    const gone = new AbortController();
    let timer = 0;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => gone.abort(), SILENT);
    };
    try {
      heard();
      const answer = await fetch("/api/v1/stream", { headers: auth.headers, signal: gone.signal });
      if (answer.status === 401) {
        clearTimeout(timer);
        await on.token();
        continue;
      }
      if (answer.status === 404) {
        on.state("old", "it has no stream of snapshots");
      } else if (!answer.ok) {
        on.state("refused", (await answer.text()).trim() || `HTTP ${answer.status}`);
      } else {
        let fits = true;
        for await (const data of events(answer.body, heard)) {
          const value = JSON.parse(data);
          fits = value.version === LAYOUT;
          if (!fits) {
            on.state("old", `the instance sends layout ${value.version}, this page reads ${LAYOUT}`);
            continue;
          }
          tries = 0;
          on.snapshot(value);
        }
        if (fits) on.state("lost", "");
      }
    } catch (error) {
      on.state("lost", error.name === "AbortError" ? "nothing heard for 5 s" : "");
    }
    clearTimeout(timer);
    await new Promise((resolve) => setTimeout(resolve, AGAIN[Math.min(tries, AGAIN.length - 1)]));
  }
}
