import knexFactory, { type Knex } from 'knex'
import { clientOf, knex } from 'pg-lockstep/knex'
import { type OrmPart, type OrmUnderTest, SAMPLE } from './ormUnderTest.ts'

function partOf(trx: Knex.Transaction): OrmPart {
  return {
    insertNote: async (id) => trx('notes').insert({ id }),
    async readCounter(name) {
      const row = await trx<{ name: string; value: number }>('orm_counters').where({ name }).first()
      return row?.value ?? NaN
    },
    writeCounter: async (name, value) => trx('orm_counters').where({ name }).update({ value }),
    raw: async (text) => trx.raw(text),
    nested: (work) => trx.transaction((inner) => work(partOf(inner))),
    writeSample: async (id) =>
      trx('orm_samples')
        .insert({ id, ...SAMPLE })
        .onConflict('id')
        .ignore(),
    readSample: async (id) => trx<object>('orm_samples').where({ id }).options({ name: 'knex_sample' }).first(),
    client: () => clientOf(trx),
  }
}

export const knexOnPg: OrmUnderTest = {
  name: 'Knex',
  driver: 'pg',
  async open({ url }) {
    const instance = knexFactory({ client: 'pg', connection: url, pool: { min: 0, max: 4 } })
    return {
      inside: async (tx, work) => work(partOf(await knex(tx, instance))),
      own: (isolationLevel, work) => instance.transaction((trx) => work(partOf(trx)), { isolationLevel }),
      close: () => instance.destroy(),
    }
  },
}
