/** What `npx prisma generate` writes. Here it is generated from tools/orms/prisma/schema.prisma, with the models of the tests. */
export { Prisma, PrismaClient } from '../../tools/orms/prisma/generated/client.ts'
