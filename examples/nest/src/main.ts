import 'reflect-metadata'
import { NestFactory } from '@nestjs/core'
import { AppModule } from './app.module.js'

const app = await NestFactory.create(AppModule, { logger: ['error', 'warn'] })
// SIGTERM ends dispatchers, then requests, then the Lockstep, then the pool.
app.enableShutdownHooks()
await app.listen(Number(process.env['PORT'] ?? 3000), '127.0.0.1')
