import 'reflect-metadata'
import {
  BadRequestException,
  Body,
  type CallHandler,
  Controller,
  type ExecutionContext,
  Get,
  Inject,
  type INestApplication,
  Injectable,
  Module,
  type NestInterceptor,
  Post,
  type Type,
} from '@nestjs/common'
import { type AbstractHttpAdapter, NestFactory } from '@nestjs/core'
import { ExpressAdapter } from '@nestjs/platform-express'
import { FastifyAdapter } from '@nestjs/platform-fastify'
import pg from 'pg'
import { defer, finalize, map, mergeMap, type Observable, race, tap, throwError } from 'rxjs'
import { beforeAll, describe, expect, test } from 'vitest'
import { note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import type { ParsedRequest } from '../http/index.ts'
import { InvalidOptionError, key, Lockstep, type Lease, type OutboxEvent, type Transaction } from '../index.ts'
import { on } from '../observe/index.ts'
import { kysely } from '../orms/kysely.ts'
import {
  Exclusive,
  HeldLease,
  Idempotent,
  InjectedDispatcher,
  Locked,
  LockstepModule,
  provideDispatcher,
  Tx,
} from './index.ts'

const bench = await testBench()

const PLATFORMS: readonly (readonly [string, () => AbstractHttpAdapter])[] = [
  ['express', () => new ExpressAdapter()],
  ['fastify', () => new FastifyAdapter()],
]

/** Applies decorators as Nest's own syntax does: `experimentalDecorators` is off here. */
function decorate(
  type: Type,
  method: string,
  decorators: MethodDecorator[],
  ...parameters: ParameterDecorator[]
): void {
  const descriptor = Object.getOwnPropertyDescriptor(type.prototype, method) as PropertyDescriptor
  for (const each of decorators.toReversed()) each(type.prototype as object, method, descriptor)
  for (const [index, each] of parameters.entries()) each(type.prototype as object, method, index)
}

const scope = (): string => 'acme'
const lock = (): ReturnType<typeof key> => key`Account:nest`

interface AppOptions {
  readonly controllers?: Type[]
  readonly providers?: object[]
  readonly module?: object
  readonly configure?: (app: INestApplication) => void
}

interface RunningApp {
  readonly app: INestApplication
  readonly url: string
  readonly post: (path: string, idempotencyKey?: string, body?: unknown) => Promise<Response>
}

async function start(adapter: AbstractHttpAdapter, options: AppOptions): Promise<RunningApp> {
  const pool = new pg.Pool({ connectionString: bench.url, max: 4 })
  const imported = LockstepModule.forRoot({ pool, endPool: true, ...options.module })
  class AppModule {}
  Module({
    imports: [imported],
    controllers: options.controllers ?? [],
    providers: (options.providers ?? []) as never[],
  })(AppModule)
  const app = await NestFactory.create(AppModule, adapter, { logger: false, abortOnError: false })
  options.configure?.(app)
  await app.listen(0, '127.0.0.1')
  bench.cleanUp(() => app.close())
  const url = await app.getUrl()
  return {
    app,
    url,
    post: (path, idempotencyKey, body = {}) =>
      fetch(url + path, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          ...(idempotencyKey !== undefined && { 'idempotency-key': idempotencyKey }),
        },
        body: JSON.stringify(body),
      }),
  }
}

beforeAll(async () => {
  // COMMIT fails once for each name that is written.
  await bench.admin.query(`
    CREATE TABLE fragile (name text NOT NULL);
    CREATE TABLE failed (name text PRIMARY KEY);
    CREATE SEQUENCE tries;
    CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF nextval('tries') = 1 THEN RAISE SQLSTATE '40001'; END IF;
      RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON fragile DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION fail_once()`)
})

describe.each(PLATFORMS)('nest on %s', (platform, newAdapter) => {
  test('@Locked: the handler reads under its lock; a lock that is taken is 409; nothing is sent before COMMIT', async () => {
    class Accounts {
      count = 0
      async close(body: { name: string }, tx: Transaction): Promise<object> {
        await tx.query('INSERT INTO fragile VALUES ($1)', [body.name])
        return { run: ++this.count }
      }
    }
    Controller('accounts')(Accounts)
    // On a busy machine the first request takes a while: it opens connections and tries the locks.
    const ways = [Post(), Locked({ lock, waitMs: 3000 })]
    decorate(Accounts, 'close', ways, Body(), Tx())
    const { post, app } = await start(newAdapter(), { controllers: [Accounts] })
    await bench.admin.query(`ALTER SEQUENCE tries RESTART`)
    // The first COMMIT is refused, so this is the second run's value.
    const answer = await post('/accounts', undefined, { name: platform })
    expect([answer.status, await answer.json()]).toEqual([201, { run: 2 }])
    expect((await bench.admin.query('SELECT FROM fragile WHERE name = $1', [platform])).rowCount).toBe(1)
    const [held, letGo] = [signal(), signal()]
    const holder = app.get(Lockstep).transaction({ lock: lock() }, async () => {
      held.give()
      await letGo.given
    })
    await held.given
    const busy = await post('/accounts', undefined, { name: 'busy' })
    expect(busy.status).toBe(409)
    expect(busy.headers.get('content-type')).toMatch(/^application\/problem\+json/)
    expect(await busy.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:busy' })
    letGo.give()
    await holder
  })

  test('@Idempotent stores what the interceptors around it have made of the value, and replays those bytes', async () => {
    const ended: string[] = []
    class WithoutSecrets implements NestInterceptor {
      intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
        const data = map((value: { secret?: string } | undefined) => ({ data: { ...value, secret: undefined } }))
        return next.handle().pipe(
          data,
          finalize(() => ended.push('ended')),
        )
      }
    }
    class Payments {
      count = 0
      async pay(tx: Transaction): Promise<object> {
        await note(tx, `${platform}-paid`)
        return { run: ++this.count, secret: 'sesame' }
      }
    }
    Controller('payments')(Payments)
    decorate(Payments, 'pay', [Post(), Idempotent({ scope })], Tx())
    const { post } = await start(newAdapter(), {
      controllers: [Payments],
      configure: (app) => app.useGlobalInterceptors(new WithoutSecrets()),
    })
    const first = await post('/payments', `bytes-${platform}`)
    const again = await post('/payments', `bytes-${platform}`)
    expect([first.status, again.status]).toEqual([201, 201])
    expect(again.headers.get('idempotency-replayed')).toBe('true')
    const bytes = await first.text()
    expect(bytes).toBe('{"data":{"run":1}}')
    expect(await again.text()).toBe(bytes)
    const missing = await post('/payments')
    expect(missing.status).toBe(400)
    expect(await missing.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:key-missing' })
    const { rows } = await bench.admin.query(`SELECT convert_from(body, 'UTF8') AS body FROM lockstep.idempotency`)
    expect(JSON.stringify(rows)).not.toContain('sesame')
    // What an interceptor has begun ends, also for an answer of the guard.
    await expect.poll(() => ended).toHaveLength(3)
    expect(await bench.notes()).toEqual([`${platform}-paid`])
  })

  test('an interceptor that sets a header after the handler does not fail at a replay', async () => {
    const errors: unknown[] = []
    class Timing implements NestInterceptor {
      intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
        const response = context.switchToHttp().getResponse<{ header(name: string, value: string): unknown }>()
        return next.handle().pipe(tap(() => void response.header('x-timing', '1')))
      }
    }
    class Payments {
      pay(): object {
        return {}
      }
    }
    Controller('timed')(Payments)
    decorate(Payments, 'pay', [Post(), Idempotent({ scope })])
    const { post } = await start(newAdapter(), {
      controllers: [Payments],
      configure: (app) => {
        app.useGlobalInterceptors(new Timing())
        app.useGlobalFilters({ catch: (error: unknown) => void errors.push(error) })
      },
    })
    expect((await post('/timed', `timed-${platform}`)).headers.get('x-timing')).toBe('1')
    const again = await post('/timed', `timed-${platform}`)
    expect(again.headers.get('idempotency-replayed')).toBe('true')
    expect(errors).toEqual([])
  })

  test('@Idempotent: a conflict at COMMIT is 503, nothing is done, and the retry runs', async () => {
    class Payments {
      count = 0
      async pay(tx: Transaction): Promise<object> {
        await tx.query('INSERT INTO fragile VALUES ($1)', [`idempotent-${platform}`])
        return { run: ++this.count }
      }
    }
    Controller('payments')(Payments)
    decorate(Payments, 'pay', [Post(), Idempotent({ scope })], Tx())
    const { post } = await start(newAdapter(), { controllers: [Payments] })
    await bench.admin.query('ALTER SEQUENCE tries RESTART')
    const refused = await post('/payments', `commit-${platform}`)
    expect(refused.status).toBe(503)
    expect(refused.headers.get('retry-after')).toBe('1')
    expect(await refused.json()).toMatchObject({ type: 'urn:pg-lockstep:problem:unavailable' })
    const rows = async (): Promise<number | null> =>
      (await bench.admin.query('SELECT FROM fragile WHERE name = $1', [`idempotent-${platform}`])).rowCount
    expect(await rows()).toBe(0)
    expect(await (await post('/payments', `commit-${platform}`)).json()).toEqual({ run: 2 })
    expect(await rows()).toBe(1)
  })

  test('an error at COMMIT goes to the exception filters of the application', async () => {
    class Payments {
      async pay(tx: Transaction): Promise<object> {
        await tx.query('CREATE TEMP TABLE twice (id int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP')
        await tx.query('INSERT INTO twice VALUES (1), (1)')
        return { paid: true }
      }
    }
    Controller('payments')(Payments)
    decorate(Payments, 'pay', [Post(), Idempotent({ scope })], Tx())
    const { post } = await start(newAdapter(), { controllers: [Payments] })
    const failed = await post('/payments', `deferred-${platform}`)
    expect(failed.status).toBe(500)
    expect(await failed.json()).toMatchObject({ statusCode: 500, message: 'Internal server error' })
  })

  test('an interceptor that gives up on the handler answers at once; what the handler did is rolled back', async () => {
    const [entered, leave] = [signal(), signal()]
    let gaveUp = false
    class Impatient implements NestInterceptor {
      intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
        if (gaveUp) return next.handle()
        gaveUp = true
        return race(next.handle(), defer(() => entered.given).pipe(mergeMap(() => throwError(() => new Error('late')))))
      }
    }
    class Payments {
      async pay(tx: Transaction): Promise<object> {
        await note(tx, `late-${platform}`)
        entered.give()
        await leave.given
        return { paid: true }
      }
    }
    Controller('payments')(Payments)
    decorate(Payments, 'pay', [Post(), Idempotent({ scope })], Tx())
    const { post } = await start(newAdapter(), {
      controllers: [Payments],
      configure: (app) => app.useGlobalInterceptors(new Impatient()),
    })
    const answer = await post('/payments', `late-${platform}`)
    expect(answer.status).toBe(500)
    // It still runs, and keeps its key.
    expect((await post('/payments', `late-${platform}`)).status).toBe(409)
    leave.give()
    const left = async (): Promise<number> => bench.locksHeld()
    await expect.poll(left).toBe(0)
    expect(await bench.notes()).toEqual([])
    const { rowCount } = await bench.admin.query('SELECT FROM lockstep.idempotency WHERE key = $1', [
      `late-${platform}`,
    ])
    expect(rowCount).toBe(0)
  })

  test('@Exclusive gives the lease; a parameter without its guard is an error', async () => {
    class Instances {
      next(lease: Lease): object {
        return { key: lease.key }
      }
      none(tx: Transaction): object {
        return { tx }
      }
    }
    Controller('instances')(Instances)
    const exclusive = Exclusive({ key: (request: ParsedRequest) => key`Instance:${request.url.length}` })
    decorate(Instances, 'next', [Post('next'), exclusive], HeldLease())
    decorate(Instances, 'none', [Post('none')], Tx())
    const { post } = await start(newAdapter(), { controllers: [Instances] })
    expect(await (await post('/instances/next')).json()).toEqual({ key: 'Instance:15' })
    expect((await post('/instances/none')).status).toBe(500)
  })

  test('mounts the console, whose forms can be sent, and closes with its stream open', async () => {
    const token = 'the-token-of-the-console'
    const { app, url } = await start(newAdapter(), { module: { console: { base: '/console', token } } })
    expect((await fetch(`${url}/console/api/session`)).status).toBe(401)
    const login = await fetch(`${url}/console/api/login`, {
      method: 'POST',
      headers: { origin: url, 'content-type': 'application/json', 'x-lockstep-csrf': 'none yet' },
      body: JSON.stringify({ token }),
    })
    expect(login.status).toBe(204)
    const headers = { authorization: `Bearer ${token}` }
    const stream = await fetch(`${url}/console/api/stream?show=overview`, { headers })
    const reader = stream.body?.getReader()
    await reader?.read()
    const closing = app.close()
    while ((await reader?.read())?.done === false);
    await closing
  })
})

interface Database {
  readonly nest_accounts: { name: string; balance: number }
}

/** A provider that knows its ORM and the Lockstep of the application, and nothing of requests. */
class Transfers {
  readonly lockstep: Lockstep
  /** Called after a transfer has read, with what it has read. */
  read: (balance: number) => Promise<void> = async () => undefined

  constructor(lockstep: Lockstep) {
    this.lockstep = lockstep
  }

  withdraw(name: string, amount: number): Promise<number> {
    return this.lockstep.transaction({ lock: key`NestAccount:${name}` }, (tx) => this.withdrawIn(tx, name, amount))
  }

  /** In the transaction of a decorator. */
  async withdrawIn(tx: Transaction, name: string, amount: number): Promise<number> {
    const db = kysely<Database>(tx)
    const ofName = db.selectFrom('nest_accounts').select('balance').where('name', '=', name)
    const { balance } = await ofName.executeTakeFirstOrThrow()
    await this.read(balance)
    // The new balance depends on what was read: without the lock, one of two would be lost.
    const left = balance - amount
    await db.updateTable('nest_accounts').set({ balance: left }).where('name', '=', name).execute()
    return left
  }
}
Injectable()(Transfers)
Inject(Lockstep)(Transfers, undefined, 0)

describe('an ORM in a provider', () => {
  beforeAll(() => bench.admin.query('CREATE TABLE nest_accounts (name text PRIMARY KEY, balance int NOT NULL)'))

  class Accounts {
    readonly transfers: Transfers
    constructor(transfers: Transfers) {
      this.transfers = transfers
    }
    async own({ name }: { name: string }): Promise<object> {
      return { left: await this.transfers.withdraw(name, 10) }
    }
    async decorated({ name }: { name: string }, tx: Transaction): Promise<object> {
      return { left: await this.transfers.withdrawIn(tx, name, 10) }
    }
    async fails({ name }: { name: string }, tx: Transaction): Promise<object> {
      await this.transfers.withdrawIn(tx, name, 10)
      throw new BadRequestException('not this one')
    }
  }
  Controller('withdrawals')(Accounts)
  Inject(Transfers)(Accounts, undefined, 0)
  const locked = Locked({ lock: ({ body }) => key`NestAccount:${(body as { name: string }).name}`, waitMs: 60_000 })
  decorate(Accounts, 'own', [Post('own')], Body())
  decorate(Accounts, 'decorated', [Post('decorated'), locked], Body(), Tx())
  decorate(Accounts, 'fails', [Post('fails'), locked], Body(), Tx())

  async function open(name: string): Promise<RunningApp & { readonly balance: () => Promise<number | undefined> }> {
    await bench.admin.query('INSERT INTO nest_accounts VALUES ($1, 100)', [name])
    const running = await start(new ExpressAdapter(), { controllers: [Accounts], providers: [Transfers] })
    const balance = async (): Promise<number | undefined> => {
      const text = 'SELECT balance FROM nest_accounts WHERE name = $1'
      return (await bench.admin.query<{ balance: number }>(text, [name])).rows[0]?.balance
    }
    return { ...running, balance }
  }

  test.each(['own', 'decorated'] as const)('reads and writes under the lock: %s', async (path) => {
    const { app, post, balance } = await open(path)
    const [read, queued, goOn] = [signal(), signal(), signal()]
    bench.cleanUp(() => goOn.give())
    let waiting = 0
    bench.cleanUp(on('lock.contended', () => ++waiting === 2 && queued.give()))
    const seen: number[] = []
    app.get(Transfers).read = async (value) => {
      seen.push(value)
      read.give()
      await goOn.given
    }
    const answers = [1, 2, 3].map(() => post(`/withdrawals/${path}`, undefined, { name: path }))
    await read.given
    // The others wait, before they have read.
    await queued.given
    expect(seen).toEqual([100])
    goOn.give()
    const left = await Promise.all(
      answers.map(async (answer) => ((await (await answer).json()) as { left: number }).left),
    )
    expect(left.toSorted((a, b) => b - a)).toEqual([90, 80, 70])
    expect(seen).toEqual([100, 90, 80])
    expect(await balance()).toBe(70)
  })

  test('control: two withdrawals without the lock lose one of them', async () => {
    const { app, balance } = await open('control')
    const transfers = app.get(Transfers)
    let [count, both] = [0, signal()]
    transfers.read = async () => {
      if (++count === 2) both.give()
      await both.given
    }
    const unlocked = (): Promise<number> =>
      transfers.lockstep.transaction({}, (tx) => transfers.withdrawIn(tx, 'control', 10))
    await Promise.all([unlocked(), unlocked()])
    expect(await balance()).toBe(90)
  })

  test('is rolled back with the handler', async () => {
    const { post, balance } = await open('rolled back')
    expect((await post('/withdrawals/fails', undefined, { name: 'rolled back' })).status).toBe(400)
    expect(await balance()).toBe(100)
  })
})

test('forRootAsync() migrates, injects the Lockstep, and closes it and the pool with the application', async () => {
  class Settings {
    readonly url = bench.url
  }
  Injectable()(Settings)
  class SettingsModule {}
  Module({ providers: [Settings], exports: [Settings] })(SettingsModule)
  class Reader {
    readonly lockstep: Lockstep
    constructor(lockstep: Lockstep) {
      this.lockstep = lockstep
    }
  }
  Injectable()(Reader)
  Inject(Lockstep)(Reader, undefined, 0)
  let pool: pg.Pool | undefined
  class AppModule {}
  Module({
    imports: [
      LockstepModule.forRootAsync({
        imports: [SettingsModule],
        inject: [Settings],
        useFactory: (settings: Settings) => {
          pool = new pg.Pool({ connectionString: settings.url })
          return { pool, lockstep: { schema: 'lockstep_nest' }, migrate: true, endPool: true }
        },
      }),
    ],
    providers: [Reader],
  })(AppModule)
  const app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false })
  const { lockstep } = app.get(Reader)
  expect(lockstep).toBe(app.get(Lockstep))
  expect(await lockstep.transaction({ lock: lock() }, async () => Promise.resolve('ran'))).toBe('ran')
  await app.close()
  await expect(lockstep.transaction({}, async () => undefined)).rejects.toMatchObject({ code: 'LOCKSTEP_CLOSED' })
  expect(pool?.ended).toBe(true)
})

test('a dispatcher as a provider delivers while the application runs, and stops with it', async () => {
  const sent: string[] = []
  class Sink {
    readonly send = (events: readonly OutboxEvent[]): Promise<void> => {
      sent.push(...events.map((event) => event.key))
      return Promise.resolve()
    }
  }
  Injectable()(Sink)
  class Orders {
    get(): string {
      return 'up'
    }
  }
  Controller()(Orders)
  decorate(Orders, 'get', [Get()])
  const { app, url } = await start(new ExpressAdapter(), {
    controllers: [Orders],
    providers: [
      Sink,
      provideDispatcher({
        provide: 'ORDERS',
        inject: [Sink],
        useFactory: ({ send }: Sink) => ({ name: 'nest', sink: send }),
      }),
    ],
  })
  expect(await (await fetch(url)).text()).toBe('up')
  expect(app.get<InjectedDispatcher>('ORDERS').name).toBe('nest')
  const lockstep = app.get(Lockstep)
  const enqueue = (id: string): Promise<void> =>
    lockstep.transaction({}, async (tx) => {
      await tx.enqueue({ topic: 'orders', key: id, payload: {} } as never)
    })
  await enqueue('one')
  await expect.poll(() => sent).toEqual(['one'])
  await app.close()
  // It has given its shards back.
  const { rows } = await bench.admin.query(`SELECT FROM lockstep.leases WHERE token IS NOT NULL`)
  expect(rows).toEqual([])
})

test('rejects options that make no sense', async () => {
  const pool = new pg.Pool({ connectionString: bench.url })
  bench.cleanUp(() => pool.end())
  const create = async (options: object): Promise<unknown> => {
    class AppModule {}
    Module({ imports: [LockstepModule.forRoot(options as never)] })(AppModule)
    return NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false })
  }
  for (const options of [{ pool: undefined }, { pool, migrated: true }, { pool, console: {} }]) {
    await expect(create(options)).rejects.toBeInstanceOf(InvalidOptionError)
  }
  expect(() => provideDispatcher({ provide: 'X' } as never)).toThrow(InvalidOptionError)
  const misspelled = { provide: 'X', injects: [], useFactory: () => ({}) }
  expect(() => provideDispatcher(misspelled as never)).toThrow(InvalidOptionError)
})

describe('a decorator that could not work keeps the application from starting', () => {
  class Base {
    close(): object {
      return {}
    }
  }
  class WithoutPath extends Base {}
  Controller('without-path')(WithoutPath)
  decorate(Base, 'close', [Locked({ lock })])

  class Wrapped {
    close(): object {
      return {}
    }
  }
  const wrap: MethodDecorator = (_target, _name, descriptor) => {
    const { value } = descriptor as { value?: () => object }
    Object.assign(descriptor, { value: () => value?.() })
  }
  Controller('wrapped')(Wrapped)
  const descriptor = Object.getOwnPropertyDescriptor(Wrapped.prototype, 'close') as PropertyDescriptor
  for (const each of [Locked({ lock }), wrap, Post()]) each(Wrapped.prototype, 'close', descriptor)
  Object.defineProperty(Wrapped.prototype, 'close', descriptor)

  test.each([
    ['a provider', { providers: [Base] }],
    ['a controller, on a method without a path', { controllers: [WithoutPath] }],
    ['a controller, below a decorator that replaces the method', { controllers: [Wrapped] }],
  ])('%s', async (_name, parts) => {
    const starting = start(new ExpressAdapter(), parts)
    await expect(starting).rejects.toThrow(/\.close has a decorator of pg-lockstep\/nest, and is no HTTP handler/)
  })

  test('two of them on one handler, also where they are the same', async () => {
    const pairs = [
      [Exclusive({ key: lock }), Locked({ lock })],
      [Idempotent({ scope }), Idempotent({ scope })],
    ]
    for (const pair of pairs) {
      class Instances {
        both(): object {
          return {}
        }
      }
      Controller('instances')(Instances)
      decorate(Instances, 'both', [Post('both'), ...pair])
      await expect(start(new ExpressAdapter(), { controllers: [Instances] })).rejects.toThrow(
        /^Instances\.both has two of @Locked\(\), @Exclusive\(\) and @Idempotent\(\)/,
      )
    }
  })

  test('but not one that a subclass has overridden', async () => {
    class Overriding extends Base {
      override close(): object {
        return {}
      }
    }
    await start(new ExpressAdapter(), { providers: [Overriding] })
  })
})
