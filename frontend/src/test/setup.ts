import { configure } from '@testing-library/svelte'

// Times here are hang guards: a busy computer is not a fault.
configure({ asyncUtilTimeout: 60_000 })
