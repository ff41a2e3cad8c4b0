import { type Finding, lineAt, type Rule } from './tree.ts'

// A path that exists on one machine only. The look-behind lets addresses and relative paths through: site/home/x, ./work/.
const machinePath = /(?<![\w.~$}*)\]-])\/(?:work|root|home|Users)\/[\w.-]+|\b[A-Z]:\\Users\\\w+/g

const binary = /\.(png|jpe?g|gif|ico|woff2?|webp|wasm|gz|tgz|zip|pdf)$/

/** The sources tell nothing of the machine they were written on. */
export const noMachinePaths: Rule = {
  name: 'no-machine-paths',
  find(tree) {
    return tree.files
      .filter((file) => !binary.test(file))
      .flatMap((file): Finding[] => {
        const text = tree.read(file)
        return [...text.matchAll(machinePath)].map((match) => ({
          file,
          line: lineAt(text, match.index),
          message: `${match[0]} is a path of one machine`,
        }))
      })
  },
}
