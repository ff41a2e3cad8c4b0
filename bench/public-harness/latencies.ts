import { createHistogram, type RecordableHistogram } from 'node:perf_hooks'

/** Of the last 30 seconds, as the harness wants it, in parts of 5: bounded memory, three significant figures. */
const PART_MS = 5000
const PARTS = 6

export class Latencies {
  readonly #parts: { readonly number: number; readonly histogram: RecordableHistogram }[] = []

  add(ms: number): void {
    // It takes whole numbers from 1 on: microseconds.
    this.#current().record(Math.max(1, Math.round(ms * 1000)))
  }

  /** The 50th, 95th and 99th percentile, in milliseconds; 0 where there was nothing. */
  percentiles(): readonly [number, number, number] {
    this.#current()
    const all = createHistogram({ figures: 3 })
    for (const { histogram } of this.#parts) if (histogram.count > 0) all.add(histogram)
    if (all.count === 0) return [0, 0, 0]
    return [all.percentile(50) / 1000, all.percentile(95) / 1000, all.percentile(99) / 1000]
  }

  #current(): RecordableHistogram {
    const number = Math.floor(performance.now() / PART_MS)
    const last = this.#parts.at(-1)
    if (last?.number === number) return last.histogram
    const histogram = createHistogram({ figures: 3 })
    this.#parts.push({ number, histogram })
    while ((this.#parts[0]?.number ?? number) <= number - PARTS) this.#parts.shift()
    return histogram
  }
}
