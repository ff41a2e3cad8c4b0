import { Module } from '@nestjs/common'
import pg from 'pg'
import { LockstepModule, provideDispatcher } from 'pg-lockstep/nest'
import { InstancesController } from './instances.controller.js'
import { ReceiptsSink } from './receipts.sink.js'
import { TransfersController } from './transfers.controller.js'
import { TransfersService } from './transfers.service.js'

@Module({
  imports: [
    LockstepModule.forRootAsync({
      useFactory: () => ({
        pool: new pg.Pool({ connectionString: process.env['DATABASE_URL'], max: 8 }),
        endPool: true,
        migrate: true,
        console: { base: '/console' },
      }),
    }),
  ],
  controllers: [TransfersController, InstancesController],
  providers: [
    TransfersService,
    ReceiptsSink,
    provideDispatcher({
      provide: 'RECEIPTS',
      inject: [ReceiptsSink],
      useFactory: (sink: ReceiptsSink) => ({ name: 'receipts', sink: sink.send, ttlMs: 2_000 }),
    }),
  ],
})
export class AppModule {}
