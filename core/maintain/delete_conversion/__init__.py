"""Replacement of delete files: conversion of equality deletes, and rewrites of position deletes."""
