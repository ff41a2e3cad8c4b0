import { isLibrarySource, type Rule } from './tree.ts'
import { literalsOf, type Passage } from './source.ts'

/**
 * SQL is in `<module>.sql.ts` and in sql/, where it can be read, measured and reviewed as SQL. Hand-written: linters find SQL in tagged
 * templates only.
 */
export const sqlInOwnFiles: Rule = {
  name: 'sql-in-own-files',
  find(tree) {
    return tree.files
      .filter((file) => isLibrarySource(file) && !file.endsWith('.sql.ts'))
      .flatMap((file) =>
        literalsOf(file, tree.read(file))
          .filter(isSql)
          .map(({ text, line }) => ({ file, line, message: `SQL outside a *.sql.ts: ${text.trim().slice(0, 60)}` })),
      )
  },
}

const name = String.raw`(?:[\w.]+|"[^"]+"|\$\{\})`

// A statement is known by its first words *and* what follows them: "update the row" is English, "update row set" is not.
const statements: readonly RegExp[] = [
  String.raw`select\s+[^]*?\bfrom\s+(?!the\b|a\b|an\b)[\w."$(]`,
  String.raw`select\s+(?:[*$'\d(]|distinct\b|exists\b|not\b|${name}\s*(?:\(|::|,|$))`,
  String.raw`insert\s+into\s+${name}`,
  String.raw`update\s+(?:only\s+)?${name}(?:\s+(?:as\s+)?\w+)?\s+set\b`,
  String.raw`delete\s+from\s+${name}`,
  String.raw`merge\s+into\s+${name}`,
  String.raw`with\s+(?:recursive\s+)?${name}\s*(?:\([^)]*\)\s*)?as\s+(?:not\s+|materialized\s+)*\(`,
  String.raw`values\s*\(`,
  String.raw`(?:create|alter|drop)\s+(?:or\s+replace\s+)?(?:temp|temporary|unlogged|unique|global|local)?\s*(?:table|index|schema|function|procedure|view|materialized\s+view|sequence|trigger|type|domain|extension|role|user|database|policy|publication)\s+(?:if\s+|concurrently\s+|only\s+)?(?:(?:not\s+)?exists\s+)?${name}\s*(?:$|[(;]|(?:as|on|add|drop|rename|set|owner|using|cascade|restrict|returns|start|before|after|template|with|partition|enable|disable|force)\b)`,
  String.raw`truncate\s+(?:table\s+)?${name}\s*(?:$|[,;]|(?:restart|continue|cascade|restrict)\b)`,
  String.raw`set\s+(?:local|session|transaction|constraints)\s+${name}\s*(?:=|\bto\b|characteristics\b|deferred\b|level\b|committed\b|only\b|write\b|snapshot\b)`,
  String.raw`set\s+${name}\s*(?:=|\bto\b)\s*[\w'"$]`,
  String.raw`(?:begin|start\s+transaction)\s+(?:isolation|read|deferrable|not|work|transaction)\b`,
  String.raw`(?:start\s+transaction|commit\s+and\s+(?:no\s+)?chain|rollback\s+and\s+(?:no\s+)?chain|discard\s+all|unlisten\s+\*)\s*;?\s*$`,
  String.raw`(?:begin|commit|rollback|abort|end)\s*;`,
  String.raw`(?:savepoint|release|release\s+savepoint|rollback\s+to|rollback\s+to\s+savepoint)\s+${name}\s*;?\s*$`,
  String.raw`(?:prepare\s+transaction|commit\s+prepared|rollback\s+prepared)\s+['$]`,
  String.raw`lock\s+(?:table\s+)?(?:only\s+)?${name}\s+in\s+\w+`,
  String.raw`lock\s+table\s+${name}\s*;?\s*$`,
  String.raw`(?:show|listen|unlisten|reset|deallocate|notify)\s+${name}\s*(?:,\s*'[^']*'\s*)?;?\s*$`,
  String.raw`(?:explain|analyze|vacuum)\s+(?:\(|analyze\b|verbose\b|${name}\s*;?\s*$)`,
  String.raw`(?:grant|revoke)\s+[\w,\s]+\s+(?:on|to|from)\s+${name}`,
  String.raw`copy\s+${name}\s*(?:\([^)]*\)\s*)?(?:from|to)\s+(?:stdin|stdout|['$])`,
  String.raw`declare\s+${name}\s+(?:\w+\s+)*cursor\b`,
  String.raw`call\s+${name}\s*\(`,
  String.raw`do\s+\$\w*\$`,
].map((source) => new RegExp(String.raw`^\s*(?:--[^\n]*\n\s*|/\*[^]*?\*/\s*)*${source}`, 'i'))

const bareCommand = /^\s*(begin|commit|rollback|abort)\s*$/i

function isSql({ text, before }: Passage): boolean {
  if (bareCommand.test(text)) return isBareStatement(text, before)
  // SQL is written select or SELECT; "Select …" opens a sentence.
  if (/^\s*[A-Z][a-z]/.test(text)) return false
  return statements.some((statement) => statement.test(text))
}

// One word alone may be a phase's name, or the command tag that the server answered. It is a statement where it is
// sent, or where it is written in capitals and not merely compared.
function isBareStatement(text: string, before: string): boolean {
  if (/\b(query|execute|exec|unsafe|send|run)\s*(<[^<>]*>)?\($/.test(before)) return true
  return text === text.toUpperCase() && !/([=!]==?|\bcase|\||\bincludes\()$/.test(before)
}
