import { type Check, faultsOf } from './check.ts'
import { command } from './command.ts'
import { root, tool } from './repository.ts'

export const types: Check = {
  name: 'types',
  async run() {
    const result = await command(tool('tsc'), ['-p', 'tsconfig.json', '--noEmit', '--pretty', 'false'], { cwd: root })
    return { faults: faultsOf(result, 'tsc') }
  },
}
