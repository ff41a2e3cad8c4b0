import type { Entry } from '../../history.ts'
import type { Picture } from '../state.ts'

/** Draws one side of a card from what is recorded: bounded, however long the run is. */
export interface PictureSource {
  see(entry: Entry): void
  /** What is in the database, read in one statement. */
  sample?(found: readonly Entry[]): void
  picture(nowMs: number): Picture
}
