import '@fontsource-variable/inter'
import '@fontsource-variable/jetbrains-mono'
import { mount } from 'svelte'
import { takeKey } from './api/transport'
import App from './App.svelte'
import './base.css'
import { theme } from './lib/theme.svelte'

takeKey()
theme.start()
const target = document.getElementById('app')
if (!target) throw new Error('index.html has no #app')
export default mount(App, { target })
