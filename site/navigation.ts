/** The sidebar, by task. A test compares it with docs/: every page is in it once. */
export interface Section {
  readonly text: string
  readonly items: readonly Item[]
}

export interface Item {
  readonly text: string
  /** A page, without `.md`. */
  readonly link: string
}

const page = (link: string, text: string): Item => ({ text, link: `/${link}` })

export const sections: readonly Section[] = [
  {
    text: 'Start',
    items: [
      page('guides/getting-started', 'Getting started'),
      page('guides/choosing-a-module', 'Which tool for which problem'),
      page('guides/choosing-isolation', 'Isolation levels'),
      page('guides/cookbook', 'Cookbook'),
      page('guides/testing-your-code', 'Testing your code'),
      page('contents', 'All pages'),
    ],
  },
  {
    text: 'Keep callers apart',
    items: [
      page('reference/transactions', 'Transactions'),
      page('reference/locks', 'Locks'),
      page('reference/rows', 'Row locks'),
      page('reference/once', 'Find or create once'),
      page('reference/combine', 'Hot rows: combine'),
      page('guides/gap-free-counters', 'Gap-free counters'),
      page('reference/guards', 'Guards: writers without a lock'),
    ],
  },
  {
    text: 'Longer than a transaction',
    items: [page('reference/leases', 'Leases, leader, semaphore')],
  },
  {
    text: 'Requests',
    items: [page('reference/http', 'HTTP: exclusive and idempotent'), page('reference/nest', 'NestJS')],
  },
  {
    text: 'Send and receive events',
    items: [
      page('reference/outbox', 'Outbox'),
      page('reference/inbox', 'Inbox'),
      page('reference/consumers', 'Consumers'),
      page('reference/contracts', 'Contracts'),
      page('reference/sinks', 'Sinks'),
      page('guides/kafka', 'Kafka'),
      page('guides/nats', 'NATS JetStream'),
      page('guides/redis', 'Redis Streams'),
      page('guides/rabbitmq', 'RabbitMQ'),
      page('guides/webhook', 'HTTP webhooks'),
      page('guides/postgres-sink', 'Another PostgreSQL'),
    ],
  },
  {
    text: 'Use your ORM',
    items: [
      page('reference/orms', 'Overview'),
      page('guides/orms/drizzle', 'Drizzle'),
      page('guides/orms/knex', 'Knex'),
      page('guides/orms/kysely', 'Kysely'),
      page('guides/orms/mikro-orm', 'MikroORM'),
      page('guides/orms/prisma', 'Prisma'),
      page('guides/orms/sequelize', 'Sequelize'),
      page('guides/orms/typeorm', 'TypeORM'),
    ],
  },
  {
    text: 'Move to Lockstep',
    items: [
      page('migrating/index', 'Overview'),
      page('migrating/advisory-locks', 'From advisory locks'),
      page('migrating/redlock', 'From redlock'),
      page('migrating/job-queues', 'From a job queue'),
      page('guides/import', 'From an outbox table'),
      page('guides/many-databases', 'Several databases'),
      page('migrating/shedlock', 'From Spring and ShedLock'),
    ],
  },
  {
    text: 'Where it runs',
    items: [
      page('platforms/index', 'Overview'),
      page('platforms/pgbouncer', 'PgBouncer'),
      page('platforms/rds-proxy', 'RDS Proxy'),
      page('platforms/supavisor', 'Supavisor'),
      page('platforms/pgcat', 'PgCat'),
      page('platforms/neon', 'Neon'),
      page('platforms/supabase', 'Supabase'),
      page('platforms/rds-aurora', 'RDS and Aurora'),
      page('platforms/cloud-sql', 'Cloud SQL'),
      page('platforms/alloydb', 'AlloyDB'),
      page('platforms/citus', 'Citus'),
      page('platforms/cockroachdb', 'CockroachDB'),
      page('platforms/yugabytedb', 'YugabyteDB'),
    ],
  },
  {
    text: 'Operate',
    items: [
      page('operating/failures', 'Failures'),
      page('operating/locks', 'Locks in operation'),
      page('operating/leases', 'Leases in operation'),
      page('operating/outbox', 'The outbox in operation'),
      page('operating/poolers', 'Poolers and balancers'),
      page('operating/roles', 'Roles and grants'),
      page('operating/rollout', 'Rolling out locks'),
    ],
  },
  {
    text: 'Observe',
    items: [
      page('reference/console', 'Console'),
      page('reference/cli', 'Command line'),
      page('reference/observe', 'Events'),
      page('reference/prometheus', 'Prometheus metrics'),
      page('reference/otel', 'OpenTelemetry'),
      page('operating/alerts', 'Alerts'),
      page('operating/capacity', 'Capacity'),
      page('operating/dashboards', 'Dashboards'),
    ],
  },
  {
    text: 'Reference',
    items: [
      page('reference/guarantees', 'Guarantees'),
      page('reference/invariants', 'Invariants'),
      page('reference/model', 'Protocol models'),
      page('reference/errors', 'Errors'),
      page('reference/stability', 'Stability and support'),
      page('reference/postgres', 'Drivers, schema, doctor'),
      page('reference/runtimes', 'Runtimes'),
      page('reference/testing', 'Testing entry point'),
    ],
  },
  {
    text: 'Evidence',
    items: [
      page('guides/benchmarks', 'Benchmarks'),
      page('guides/prove', 'The race lab'),
      page('guides/soak', 'Soak test'),
      page('guides/desk', 'The desk'),
      page('guides/load', 'Load test of the desk'),
    ],
  },
  {
    text: 'Project',
    items: [
      page('project/architecture', 'Architecture'),
      page('decisions/index', 'Decisions'),
      page('project/contributing', 'Contributing'),
      page('project/security', 'Security'),
      page('project/changelog', 'Changelog'),
    ],
  },
]
