/** A place where our own protocol is broken on purpose, as a patch of the source: what promises to find such a thing out must do it. */
export interface Mutant extends Patch {
  readonly name: string
  /** Which step of the protocol is broken, in a sentence. */
  readonly why: string
  /** Where two places see to the same thing, each of which is enough: the others. */
  readonly and?: readonly Patch[]
  readonly caughtBy: Catcher
}

export interface Patch {
  /** From the root of the repository. */
  readonly file: string
  /** Stands in the file exactly once. */
  readonly find: string
  readonly replace: string
}

/** What has to find it out. */
export type Catcher = CatchingLab | CatchingAttack | CatchingTest

/** The race lab: a checker finds the invariant broken. */
export interface CatchingLab {
  readonly by: 'lab'
  readonly scenario: string
  /** The one kind of fault that strikes, or `none`; all kinds where it is left out. */
  readonly fault?: string
  /** By name, or by how the name begins where it is of the model of a trace. */
  readonly invariant: string
  /** The run is recorded, and replayed against the model. */
  readonly trace?: true
}

/** A scaled-down attack: one of its goals does not hold. */
export interface CatchingAttack {
  readonly by: 'attack'
  readonly attack: string
  /** How the goals' names begin or end; never a control's. */
  readonly goal: string
}

/** A test that says in its name what it is about, for what neither of them can bring about. */
export interface CatchingTest {
  readonly by: 'test'
  readonly file: string
  readonly test: string
}

/** The patch does not fit the source any more. */
export class PatchDoesNotFitError extends Error {
  override readonly name = 'PatchDoesNotFitError'
}

/** All its patches, in the order in which they are made. */
export function patchesOf({ file, find, replace, and = [] }: Mutant): readonly Patch[] {
  return [{ file, find, replace }, ...and]
}

/** The text of a file with a patch of the mutant. */
export function patched(mutant: string, text: string, { file, find, replace }: Patch): string {
  const found = text.split(find).length - 1
  if (found !== 1) {
    const times = found === 0 ? 'not found' : `found ${found} times`
    throw new PatchDoesNotFitError(
      `${mutant}: its text is ${times} in ${file}. The source has changed: adapt the mutant.`,
    )
  }
  const changed = text.replace(find, () => replace)
  if (changed === text) throw new PatchDoesNotFitError(`${mutant}: it changes nothing in ${file}.`)
  return changed
}
