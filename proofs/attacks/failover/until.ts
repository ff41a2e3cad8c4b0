import { until as holdsWithin } from '../../until.ts'

/** Comes back when it holds; fails after a while. */
export async function until(holds: () => boolean | Promise<boolean>, what = 'it', withinMs = 120_000): Promise<void> {
  if (!(await holdsWithin(holds, withinMs))) throw new Error(`${what} did not come about within ${withinMs / 1000} s`)
}
