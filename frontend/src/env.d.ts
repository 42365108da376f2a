// Fonts come as packages of style sheets, which have no types.
declare module '@fontsource-variable/*'
