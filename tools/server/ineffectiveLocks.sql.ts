/** Functions that are called like PostgreSQL's own but for one letter, and lock nothing. In their schema: the library does not rely on the search path. */
export function lookalikes(word: string, granted: boolean): string {
  const kinds = ['', '_xact'].flatMap((scope) => ['', '_shared'].map((mode) => [scope, mode] as const))
  const takes = kinds.flatMap(([scope, mode]) => [
    define(`pg_${word}${scope}_lock${mode}`, 'void', ''),
    define(`pg_try_${word}${scope}_lock${mode}`, 'boolean', `SELECT ${granted}`),
  ])
  const unlocks = ['', '_shared'].map((mode) => define(`pg_${word}_unlock${mode}`, 'boolean', 'SELECT true'))
  return [...takes, ...unlocks].join('\n')
}

function define(name: string, type: string, body: string): string {
  return `CREATE OR REPLACE FUNCTION pg_catalog.${name}(bigint) RETURNS ${type} LANGUAGE sql VOLATILE AS '${body}';`
}
