import type { Isolation } from 'pg-lockstep'
import { clientOf, sequelize } from 'pg-lockstep/sequelize'
import { DataTypes, type ModelStatic, type Model, Sequelize, Transaction } from 'sequelize'
import { type OrmPart, type OrmUnderTest, SAMPLE } from './ormUnderTest.ts'

type Table = ModelStatic<Model>

interface Tables {
  readonly Note: Table
  readonly Counter: Table
  readonly Sample: Table
}

function define(instance: Sequelize): Tables {
  const options = { timestamps: false, freezeTableName: true }
  // Sequelize writes into a definition: each column has its own.
  const text = { type: DataTypes.TEXT, primaryKey: true }
  return {
    Note: instance.define('notes', { id: { ...text } }, options),
    Counter: instance.define('orm_counters', { name: { ...text }, value: DataTypes.INTEGER }, options),
    Sample: instance.define(
      'orm_samples',
      {
        id: { ...text },
        big: DataTypes.BIGINT,
        amount: DataTypes.DECIMAL,
        numbers: DataTypes.ARRAY(DataTypes.INTEGER),
        texts: DataTypes.ARRAY(DataTypes.TEXT),
        document: DataTypes.JSONB,
        at: DataTypes.DATE(3),
        day: DataTypes.DATEONLY,
        flag: DataTypes.BOOLEAN,
      },
      options,
    ),
  }
}

function partOf(instance: Sequelize, tables: Tables, transaction: Transaction): OrmPart {
  const { Note, Counter, Sample } = tables
  return {
    insertNote: (id) => Note.create({ id }, { transaction }),
    async readCounter(name) {
      const row = await Counter.findByPk(name, { transaction, rejectOnEmpty: true })
      return row.get('value') as number
    },
    writeCounter: (name, value) => Counter.update({ value }, { where: { name }, transaction }),
    raw: (text) => instance.query(text, { transaction }),
    nested: (work) => instance.transaction({ transaction }, (inner) => work(partOf(instance, tables, inner))),
    writeSample: (id) => Sample.upsert({ id, ...SAMPLE, big: String(SAMPLE.big) }, { transaction }),
    readSample: async (id) => (await Sample.findByPk(id, { transaction }))?.get({ plain: true }) as object | undefined,
    client: () => clientOf(transaction),
  }
}

export const sequelizeOnPg: OrmUnderTest = {
  name: 'Sequelize',
  driver: 'pg',
  async open({ url }) {
    const instance = new Sequelize(url, { dialect: 'postgres', logging: false, pool: { max: 4 } })
    const tables = define(instance)
    return {
      inside: (tx, work) => work(partOf(instance, tables, sequelize(tx, instance))),
      own: (isolation, work) =>
        instance.transaction({ isolationLevel: LEVELS[isolation] }, (transaction) =>
          work(partOf(instance, tables, transaction)),
        ),
      close: () => instance.close(),
    }
  },
}

const { READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE } = Transaction.ISOLATION_LEVELS
const LEVELS: Readonly<Record<Isolation, Transaction.ISOLATION_LEVELS>> = {
  'read committed': READ_COMMITTED,
  'repeatable read': REPEATABLE_READ,
  serializable: SERIALIZABLE,
}
