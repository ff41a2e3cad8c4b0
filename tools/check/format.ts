import { type Check, faultsOf } from './check.ts'
import { command } from './command.ts'
import { root, tool } from './repository.ts'

export const format: Check = {
  name: 'format',
  async run() {
    const result = await command(tool('oxfmt'), ['--check'], { cwd: root })
    const faults = faultsOf(result, 'oxfmt --check').map((fault) => `${fault}\nRun: npm run format`)
    return { faults }
  },
}
