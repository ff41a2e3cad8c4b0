import { type Check, type Fault, faultsOf } from './check.ts'
import { command } from './command.ts'
import { root, tool } from './repository.ts'

export const types: Check = {
  name: 'types',
  async run() {
    // The pages live in a browser and know other globals.
    const faults: Fault[] = []
    for (const project of ['tsconfig.json', 'console/tsconfig.json', 'desk/page/tsconfig.json']) {
      const result = await command(tool('tsc'), ['-p', project, '--noEmit', '--pretty', 'false'], { cwd: root })
      faults.push(...faultsOf(result, 'tsc'))
    }
    return { faults }
  },
}
