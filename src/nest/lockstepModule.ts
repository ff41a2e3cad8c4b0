import { ConfigurableModuleBuilder, type DynamicModule, Module } from '@nestjs/common'
import { HttpAdapterHost, ModulesContainer } from '@nestjs/core'
import { Lockstep } from '../index.ts'
import { ApplicationLifecycle } from './applicationLifecycle.ts'
import { checkModuleOptions, type LockstepModuleOptions } from './lockstepModuleOptions.ts'

const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } =
  new ConfigurableModuleBuilder<LockstepModuleOptions>().setClassMethodName('forRoot').build()

const providers = [
  {
    provide: Lockstep,
    inject: [MODULE_OPTIONS_TOKEN],
    async useFactory(options: LockstepModuleOptions): Promise<Lockstep> {
      const { pool, lockstep: ownOptions = {}, migrate = false } = checkModuleOptions(options)
      const lockstep = new Lockstep(pool, ownOptions) as unknown as Lockstep
      if (migrate) await lockstep.migrate()
      return lockstep
    },
  },
  {
    provide: ApplicationLifecycle,
    inject: [MODULE_OPTIONS_TOKEN, Lockstep, ModulesContainer, HttpAdapterHost],
    useFactory: (
      options: LockstepModuleOptions,
      lockstep: Lockstep,
      modules: ModulesContainer,
      { httpAdapter }: HttpAdapterHost,
    ) => new ApplicationLifecycle(options, lockstep, modules, httpAdapter),
  },
]

/**
 * One Lockstep for the application, provided as the class `Lockstep` in every module.
 *
 * @example
 * @Module({ imports: [LockstepModule.forRoot({ pool: new pg.Pool(), migrate: true })] })
 * export class AppModule {}
 *
 * @example
 * LockstepModule.forRootAsync({
 *   inject: [ConfigService],
 *   useFactory: (config: ConfigService) => ({ pool: new pg.Pool({ connectionString: config.get('DATABASE_URL') }), endPool: true }),
 * })
 */
export class LockstepModule extends ConfigurableModuleClass {
  static override forRoot(options: typeof OPTIONS_TYPE): DynamicModule {
    return { ...super.forRoot(options), global: true }
  }

  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    return { ...super.forRootAsync(options), global: true }
  }
}

Module({ providers, exports: [Lockstep] })(LockstepModule)
