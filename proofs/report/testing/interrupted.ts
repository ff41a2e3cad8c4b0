import { LiveScreen } from '../screen.ts'
import { sampleRun } from './sampleRun.ts'

// A program that shows a run and does not mind signals itself, on what it takes for a terminal.
const screen = new LiveScreen({
  output: { isTTY: true, columns: 80, rows: 24, write: (text: string) => process.stdout.write(text) },
  env: {},
})
const { scenarios, faults } = sampleRun()
screen.show({ elapsedMs: 0, totalMs: 1000, doing: 'waiting', scenarios, faults })
setTimeout(() => {}, 20_000)
