// The numbers of the last five minutes, kept while the page is open.

const MOST = 300;
const WINDOW = 10; // seconds over which rates are taken: one second jumps about

/** The sum of a distribution's counts, element by element, over subscriptions. */
function together(distributions) {
  if (distributions.length === 0) return null;
  const [first] = distributions;
  return {
    bounds: first.bounds,
    counts: first.counts.map((_, at) => distributions.reduce((sum, each) => sum + each.counts[at], 0)),
  };
}

/** A quantile of the observations between two moments; null without observations. */
export function quantile(before, after, share) {
  if (!before || !after) return null;
  const counts = after.counts.map((each, at) => each - (before.counts[at] ?? 0));
  const all = counts.reduce((sum, each) => sum + each, 0);
  if (all <= 0) return null;
  let left = share * all;
  for (const [at, each] of counts.entries()) {
    if (each > 0 && left <= each) {
      const low = at === 0 ? 0 : after.bounds[at - 1];
      const high = after.bounds[at];
      return high === undefined ? low : low + ((high - low) * left) / each;
    }
    left -= each;
  }
  return after.bounds.at(-1);
}

export class History {
  samples = [];

  /** Remember a snapshot. A snapshot of another run begins anew. */
  take(snapshot) {
    const { status, totals, taken_at: at } = snapshot;
    const last = this.samples.at(-1);
    if (last && at <= last.at) return;
    if (last && last.started !== status.started_at) this.samples = [];
    this.samples.push({
      at,
      started: status.started_at,
      fetched: totals.fetched,
      settled: totals.ok + totals.dropped + totals.dead_letters,
      failed: totals.failed_attempts,
      retried: totals.retried,
      lag: totals.lag,
      backlog: totals.backlog,
      held: totals.held,
      handler: together(status.subscriptions.map((each) => each.process_seconds)),
      busy: Object.fromEntries(
        status.subscriptions.flatMap((sub) =>
          sub.workers.map((each) => [`${sub.name}/${each.name}`, each.busy_seconds]),
        ),
      ),
      errors: Object.fromEntries(
        status.subscriptions.flatMap((sub) =>
          sub.errors.map((each) => [`${sub.name}/${each.error}/${each.where}`, each.count]),
        ),
      ),
    });
    if (this.samples.length > MOST) this.samples.shift();
  }

  /** The sample that rates at `index` are taken from. */
  before(index = this.samples.length - 1) {
    const now = this.samples[index];
    let at = index;
    while (at > 0 && now.at - this.samples[at].at < WINDOW) at -= 1;
    return this.samples[at];
  }

  /** How much of a number there is a second, lately; null while it is not known. */
  rate(read, index = this.samples.length - 1) {
    const now = this.samples[index];
    if (!now) return null;
    const before = this.before(index);
    const from = read(before);
    const to = read(now);
    if (now === before || from === undefined || to === undefined) return null;
    return Math.max(0, (to - from) / (now.at - before.at));
  }

  /** Rates at every moment. */
  rates(read) {
    return this.samples.map((_, at) => this.rate(read, at));
  }

  /** A quantile of the handler's time, lately, in seconds. */
  handler(share, index = this.samples.length - 1) {
    const now = this.samples[index];
    return now ? quantile(this.before(index).handler, now.handler, share) : null;
  }

  /** A quantile of it at every moment. */
  handlers(share) {
    return this.samples.map((_, at) => this.handler(share, at));
  }
}
