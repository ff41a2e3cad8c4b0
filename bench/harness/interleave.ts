import { spreadOf, type Spread } from './spread.ts'

/** What one turn of a contender measured, by name. */
export type Turn<Measure extends string> = Readonly<Record<Measure, number>>

/** The turns of all contenders: the spread of every measure, and of its ratio to another contender's in the same round. */
export class Rounds<Name extends string, Measure extends string> {
  readonly #turns: Readonly<Record<Name, Turn<Measure>[]>>

  constructor(turns: Readonly<Record<Name, Turn<Measure>[]>>) {
    this.#turns = turns
  }

  of(name: Name, measure: Measure): Spread {
    return spreadOf(this.#turns[name].map((turn) => turn[measure]))
  }

  /** Round by round: what slowed the machine down in a round slowed down both. */
  ratio(name: Name, other: Name, measure: Measure): Spread {
    const theirs = this.#turns[other]
    return spreadOf(this.#turns[name].map((turn, round) => turn[measure] / (theirs[round]?.[measure] ?? Number.NaN)))
  }

  /** Over all rounds. */
  total(name: Name, measure: Measure): number {
    return this.#turns[name].reduce((sum, turn) => sum + turn[measure], 0)
  }
}

/**
 * Lets contenders take turns: one round to warm up that does not count, then rounds in which each has one turn. Who begins a round
 * moves on by one, so that no contender always runs behind the same other one.
 */
export async function interleave<Name extends string, Measure extends string>(
  contenders: Readonly<Record<Name, (round: number) => Promise<Turn<Measure>>>>,
  rounds: number,
  tell: (text: string, done: number, all: number) => void,
): Promise<Rounds<Name, Measure>> {
  const names = Object.keys(contenders) as Name[]
  const turns = Object.fromEntries(names.map((name) => [name, []])) as unknown as Record<Name, Turn<Measure>[]>
  const all = (rounds + 1) * names.length
  let done = 0
  // Round 0 is the one that does not count.
  for (let round = 0; round <= rounds; round++) {
    for (let place = 0; place < names.length; place++) {
      const name = names[(round + place) % names.length] as Name
      tell(round === 0 ? `${name}, warming up` : `${name}, ${round} of ${rounds}`, done++, all)
      const turn = await contenders[name](round)
      if (round > 0) turns[name].push(turn)
    }
  }
  return new Rounds(turns)
}
