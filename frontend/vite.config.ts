import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  plugins: [svelte()],
  build: { outDir: 'dist', emptyOutDir: false, target: 'safari16', sourcemap: false, assetsInlineLimit: 0 },
  resolve: process.env.VITEST ? { conditions: ['browser'] } : undefined,
  test: { environment: 'happy-dom', include: ['src/**/*.test.ts'], setupFiles: ['src/test/setup.ts'], testTimeout: 240_000, hookTimeout: 240_000 },
})
