import type { Mutant } from './mutant.ts'

/** Of roles and of who owns the schema. */
export const roles: readonly Mutant[] = [
  {
    name: 'planted-schema-trusted',
    why: 'A migration takes the schema as it is, without a look at its owner: code in it runs with the rights of the role that migrates.',
    file: 'src/postgres/migrate.ts',
    find: `found.owned === 'true' && found.trusted === 'true' && found.foreign === null`,
    replace: `found.owned === 'true'`,
    caughtBy: { by: 'attack', attack: 'intruder', goal: 'its author is a superuser' },
  },
  {
    name: 'functions-left-to-the-public',
    why: 'A migration leaves its functions to every role of the database.',
    file: 'src/postgres/migrate.ts',
    find: 'await connection.script(closeNewObjects(schema, state.known))',
    replace: '',
    and: [{ file: 'src/postgres/migrate.ts', find: '  closeNewObjects,\n', replace: '' }],
    caughtBy: { by: 'attack', attack: 'intruder', goal: 'functions beyond its column of the page' },
  },
  {
    name: 'schema-name-in-bodies',
    why: 'The name of the schema is put into dollar-quoted bodies as it is, and may have dollars.',
    file: 'src/postgres/migrations.ts',
    find: 'const PLAIN_NAME = /^[a-z_][a-z0-9_]*$/',
    replace: 'const PLAIN_NAME = /^/',
    and: [
      {
        file: 'src/postgres/identifiers.ts',
        find: ` || schema.includes('$')`,
        replace: '',
      },
    ],
    caughtBy: { by: 'attack', attack: 'intruder', goal: 'names that are neither refused nor work' },
  },
]
