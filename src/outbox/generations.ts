import { type Connection, epochGenerations } from '../postgres/index.ts'
import { resultRows } from './resultRows.ts'

/** The generations of the database: which events were enqueued in which. They change only with the history. */
export class Generations {
  /** Ascending: events with a larger position belong to the generation, up to the next one. */
  readonly #begins: readonly { readonly after: number; readonly generation: number }[]

  constructor(begins: readonly { readonly after: number; readonly generation: number }[]) {
    this.#begins = begins
  }

  static async read(connection: Connection, quotedSchema: string): Promise<Generations> {
    const rows = resultRows(await connection.script(epochGenerations(quotedSchema)))
    return new Generations(
      rows.map((row) => ({ after: Number(row['after_id']), generation: Number(row['generation']) })),
    )
  }

  /** That of the event at a position; 0 where the event is older than the list. */
  of(position: number): number {
    for (let place = this.#begins.length - 1; place >= 0; place--) {
      const begin = this.#begins[place]
      if (begin !== undefined && position > begin.after) return begin.generation
    }
    return 0
  }
}
