import { defineConfig } from '@playwright/test'
import { chromium } from './world.mjs'

// The screens in a browser, against a real core with a machine of kind local. Every
// worker has a core of its own; Chromium is the system's.
export default defineConfig({
  testDir: './tests',
  outputDir: '../../build/tmp/page',
  workers: Number(process.env.GLASSHOUSE_WORKERS ?? 1),
  retries: 0,
  // Hang guards, not measures: a first machine and a busy computer take their time.
  timeout: 240_000,
  expect: { timeout: 60_000 },
  reporter: [['list']],
  use: {
    actionTimeout: 60_000,
    viewport: { width: 1280, height: 800 },
    screenshot: 'only-on-failure',
    launchOptions: { executablePath: chromium, args: ['--no-sandbox'] },
  },
})
